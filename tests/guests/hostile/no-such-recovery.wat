;; It answers a recovery of a case that is none.
;; world: export dsh:agent/request-error@0.1.0;
;; fails: agent/request-error trap: it broke off: unexpected discriminant: 2
(func (export "dsh:agent/request-error@0.1.0#handle") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store8 (i32.const 1028) (i32.const 2)) (return (i32.const 1024))))
  (call $request-error-next.run (local.get $next) (i32.const 2048))
  (call $ok))
