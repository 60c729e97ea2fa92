;; Its table has 500,000 elements to begin with.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: table limit 100000 elements (`table-elements`): it asked for 500001
;; always: each instance begins with that table
(table $t 500000 funcref)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then ))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
