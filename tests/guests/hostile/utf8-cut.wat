;; It answers a section whose text is cut in the middle of a character.
;; world: export dsh:system-prompt/section@0.1.0;
;; fails: system-prompt/section trap: it broke off: incomplete utf-8 byte sequence from index 0
(data (i32.const 64) "\e2\82\ac")
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 12) (i32.const 64)) (i32.store (i32.const 16) (i32.const 2)) (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
