;; It loops for ever in `agent/request-error`.
;; world: export dsh:agent/request-error@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request-error limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:agent/request-error@0.1.0#handle") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (br 0))))
  (call $request-error-next.run (local.get $next) (i32.const 2048))
  (call $ok))
