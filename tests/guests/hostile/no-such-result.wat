;; It answers a result that is neither.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: invalid expected discriminant
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 2)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
