;; It passes a call on with arguments that are 100,000 lists in lists.
;; world: export dsh:tools/execute@0.1.0;
(memory (export "memory") 16)
(func $start (memory.fill (i32.const 0x40000) (i32.const 91) (i32.const 100000)) (memory.fill (i32.const 362144) (i32.const 93) (i32.const 100000))) (start $start)
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $execute-next.run (i32.load offset=72 (local.get $args))
    (i32.load offset=8 (local.get $args)) (i32.load offset=12 (local.get $args)) (i32.load offset=16 (local.get $args)) (i32.load offset=20 (local.get $args))
    (i32.const 0x40000) (i32.const 200000) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
    (return (call $passed (i32.load (i32.const 2052))))))
  (call $passed (call $rest (local.get $args))))
