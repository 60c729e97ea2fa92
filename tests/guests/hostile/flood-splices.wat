;; It puts an empty message in the place of nothing for ever.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 300
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 300 ms
;; slow: it computes as long as it may
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 0) (i32.const 1)) (loop (call $llm-request.splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 2048)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
