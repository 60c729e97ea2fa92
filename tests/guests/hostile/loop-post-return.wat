;; It loops for ever when it may clean up after a call.
;; world: export dsh:system-prompt/section@0.1.0;
;; limit: cpu-ms 5
;; fails: system-prompt/section limit: it computed for longer than the limit `cpu-ms` of 5 ms
(global $bad (mut i32) (i32.const 0))
(func (export "cabi_post_dsh:system-prompt/section@0.1.0#sections") (param i32) (if (global.get $bad) (then (loop (br 0)))))
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (global.set $bad (i32.const 1))))
  (call $ok))
