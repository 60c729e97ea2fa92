;; It appends entries for ever.
;; world: import dsh:session/log@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: session
;; limit: host-calls 500
;; limit: cpu-ms 20000
;; fails: agent/request limit: it made more calls to the host than the limit `host-calls` of 500
;; slow: it appends as much as it may
(data (i32.const 0) "note") (data (i32.const 8) "1")
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $log.append (i32.const 0) (i32.const 4) (i32.const 8) (i32.const 1) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (memory.copy (i32.const 1028) (i32.const 2056) (i32.const 16)) (i32.store8 (i32.const 1024) (i32.const 1)) (return (i32.const 1024))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
