;; Its table has 10,000,000 elements to begin with.
;; world: export dsh:agent/request@0.1.0;
;; load: the component does not fit this host: module table does not fit in pooling allocator requirements: table index 0 has a minimum element size of 10000000 which exceeds the limit of 1000000
(table $t 10000000 funcref)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
