;; It calls the host while the host wants room for a text in its memory.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it trapped: wasm trap: cannot leave component instance
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (drop (call $runtime.cancelled)) (i32.const 4096))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.system (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
