;; It wants a failed request to be tried again in 49 days.
;; world: export dsh:agent/request-error@0.1.0;
(func (export "dsh:agent/request-error@0.1.0#handle") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 1028) (i32.const 1)) (i32.store (i32.const 1032) (i32.const -1)) (return (i32.const 1024))))
  (call $request-error-next.run (local.get $next) (i32.const 2048))
  (call $ok))
