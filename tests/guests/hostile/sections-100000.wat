;; It has 100,000 sections of the system prompt, all of one name and at the smallest place.
;; world: export dsh:system-prompt/section@0.1.0;
;; slow: it is 100,000 sections
(memory (export "memory") 40) (data (i32.const 0) "x")
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32) (local $at i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (local.set $at (i32.const 0x40000)) (loop (i32.store offset=8 (local.get $at) (i32.const -2147483648)) (i32.store offset=12 (local.get $at) (i32.const 0)) (i32.store offset=16 (local.get $at) (i32.const 1)) (local.set $at (i32.add (local.get $at) (i32.const 20))) (br_if 0 (i32.lt_u (local.get $at) (i32.const 0x228480)))) (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 262144)) (i32.store (i32.const 1032) (i32.const 100000)) (return (i32.const 1024))))
  (call $ok))
