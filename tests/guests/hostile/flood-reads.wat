;; It reads the log for ever.
;; world: import dsh:session/log@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; grant: session
;; limit: host-calls 20000
;; limit: cpu-ms 20000
;; fails: agent/request limit: it made more calls to the host than the limit `host-calls` of 20000
;; slow: it makes as many calls as it may
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x10000))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $log.read (i64.const 0) (i32.const 0xffffffff) (i32.const 2048)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
