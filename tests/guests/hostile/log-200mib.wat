;; It writes a line of 200 MiB to the log.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; limit: memory-mib 256
;; fails: agent/request limit: it handed more data to the host than the limit `output-mib` of 16 MiB
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (memory.grow (i32.const 3300))) (call $runtime.log (i32.const 3) (i32.const 0x10000) (i32.const 0xc800000))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
