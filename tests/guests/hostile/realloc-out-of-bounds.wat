;; It gives the host an address behind its memory when it wants room for a text.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request trap: it broke off: realloc return: beyond end of memory
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x7ffffff0))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.system (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
