;; It writes lines of 1 MiB to the log until it may hand over no more.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 500 ms
;; slow: it hands over as much as it may
(memory (export "memory") 16)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $runtime.log (i32.const 3) (i32.const 0x10000) (i32.const 0x80000)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
