;; It sets a model whose name is escape sequences, and hands on what it is told.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: no provider for `\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}\u{1b}` (`invalid-argument`)
(memory (export "memory") 16) (func $start (memory.fill (i32.const 0x40000) (i32.const 27) (i32.const 0x10000))) (start $start)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $llm-request.set-model (local.get $request) (i32.const 0x40000) (i32.const 0x14) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
