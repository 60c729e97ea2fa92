;; It calls itself for ever when the host wants room for a text in its memory.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: its calls nest deeper than the limit `stack-kib` of 512 KiB (recursion without end?)
(func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.add (call $realloc (local.get 0) (local.get 1) (local.get 2) (local.get 3)) (i32.const 1)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.system (local.get $request) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
