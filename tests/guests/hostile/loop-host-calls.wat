;; It asks the host for ever whether it is cancelled.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 20000
;; fails: agent/request limit: it made more calls to the host than the limit `host-calls` of 1000000
;; slow: it makes as many calls as it may
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (drop (call $runtime.cancelled)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
