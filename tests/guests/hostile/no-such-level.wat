;; It logs at a level that is none.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: unexpected discriminant: 5
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $runtime.log (i32.const 5) (i32.const 0) (i32.const 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
