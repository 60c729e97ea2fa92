;; It loops for ever in its section of the system prompt.
;; world: export dsh:system-prompt/section@0.1.0;
;; limit: cpu-ms 5
;; fails: system-prompt/section limit: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (br 0))))
  (call $ok))
