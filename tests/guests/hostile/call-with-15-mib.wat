;; It passes the call on with arguments of 15 MiB.
;; world: export dsh:tools/execute@0.1.0;
;; slow: it hands over 15 MiB
(memory (export "memory") 300) (func $start (memory.fill (i32.const 0x40000) (i32.const 32) (i32.const 0xf00000)) (i32.store16 (i32.const 0x40000) (i32.const 0x7d7b))) (start $start)
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $execute-next.run (i32.load offset=72 (local.get $args))
    (i32.load offset=8 (local.get $args)) (i32.load offset=12 (local.get $args)) (i32.load offset=16 (local.get $args)) (i32.load offset=20 (local.get $args)) (i32.const 262144) (i32.const 15728640) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
    (if (i32.load8_u (i32.const 2048)) (then (return (i32.const 2048)))) (return (call $passed (i32.load (i32.const 2052))))))
  (call $passed (call $rest (local.get $args))))
