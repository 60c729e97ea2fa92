;; It puts messages into the inbox by `inject` for ever.
;; world: import dsh:agent/inbox@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: inbox
;; limit: host-calls 20000
;; limit: cpu-ms 20000
;; fails: agent/request limit: it made more calls to the host than the limit `host-calls` of 20000
;; slow: it hands over as much as it may
(data (i32.const 512) "flood")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 4) (i32.const 512)) (i32.store (i32.const 8) (i32.const 5))(loop (call $inbox.inject (i32.const 0) (i32.const 1) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
