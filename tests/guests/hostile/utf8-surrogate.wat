;; Its tool answers a surrogate, which is no character, in the bytes of UTF-8.
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider trap: it broke off: invalid utf-8 sequence of 1 bytes from index 0
(data (i32.const 64) "\ed\a0\80")
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 4) (i32.const 64)) (i32.store (i32.const 8) (i32.const 3)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
