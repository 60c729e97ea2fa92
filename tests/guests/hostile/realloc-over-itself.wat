;; It gives the host the same address for everything, so that texts and lists overwrite each other.
;; world: export dsh:agent/request@0.1.0;
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 2048))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.messages (local.get $request) (i32.const 0) (call $llm-request.message-count (local.get $request)) (i32.const 2048)) (call $llm-request.system (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
