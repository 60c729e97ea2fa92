;; It answers a list of 268,435,455 sections.
;; world: export dsh:system-prompt/section@0.1.0;
;; fails: system-prompt/section trap: it broke off: list pointer/length out of bounds of memory
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 268435455)) (return (i32.const 1024))))
  (call $ok))
