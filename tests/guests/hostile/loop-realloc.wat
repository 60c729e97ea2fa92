;; It loops for ever when the host wants room for a text in its memory.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (loop (br 0)) unreachable)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.system (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
