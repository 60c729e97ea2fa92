;; It uses a handle that it was never given.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: unknown handle index 12345
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $request-next.run (i32.const 12345) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
