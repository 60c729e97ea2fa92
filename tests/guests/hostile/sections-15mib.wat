;; Its section of the system prompt has 15 MiB.
;; world: export dsh:system-prompt/section@0.1.0;
;; slow: the section is 15 MiB
(memory (export "memory") 300) (func $start (memory.fill (i32.const 0x40000) (i32.const 97) (i32.const 0xf00000))) (start $start)
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 1)) (i32.store (i32.const 12) (i32.const 0x40000)) (i32.store (i32.const 16) (i32.const 0xf00000)) (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
