;; It asks a person for ever.
;; world: import dsh:tools/approval@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: approval
;; limit: outside-calls 200
;; limit: cpu-ms 20000
;; fails: agent/request limit: it asked for more questions, programs, model calls and sub-agents than the limit `outside-calls` of 200
;; slow: it asks as often as it may
(data (i32.const 0) "flood")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $approval.ask (i32.const 0) (i32.const 5) (i32.const 0) (i32.const 5) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
