;; It calls the host from the very end of its stack.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: its calls nest deeper than the limit `stack-kib` of 512 KiB (recursion without end?)
(func $down (drop (call $runtime.cancelled)) (call $down) (drop (call $runtime.cancelled)))
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $down)))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
