;; It gives the host an odd address when it wants room for a list.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: realloc return: result not aligned
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 4097))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.messages (local.get $request) (i32.const 0) (call $llm-request.message-count (local.get $request)) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
