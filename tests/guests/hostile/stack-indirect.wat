;; A function of it calls itself for ever through a table, with many arguments.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: its calls nest deeper than the limit `stack-kib` of 512 KiB (recursion without end?)
(table 1 funcref) (elem (i32.const 0) $again) (type $t (func (param i64 i64 i64 i64)))
(func $again (type $t)
  (call_indirect (type $t) (local.get 3) (local.get 2) (local.get 1) (local.get 0) (i32.const 0))
  (call_indirect (type $t) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 0)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $again (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
