;; It calls the host while it cleans up after a call.
;; world: import dsh:plugin/runtime@0.1.0;
;; world: export dsh:system-prompt/section@0.1.0;
;; fails: system-prompt/section trap: it trapped: wasm trap: cannot leave component instance
(global $bad (mut i32) (i32.const 0))
(func (export "cabi_post_dsh:system-prompt/section@0.1.0#sections") (param i32) (if (global.get $bad) (then (drop (call $runtime.cancelled)))))
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (global.set $bad (i32.const 1))))
  (call $ok))
