;; It takes another step with a text of 1 MiB, once.
;; world: export dsh:agent/turn-continuation@0.1.0;
(memory (export "memory") 24) (func $start (memory.fill (i32.const 0x40000) (i32.const 97) (i32.const 0x100000))) (start $start)
(func (export "dsh:agent/turn-continuation@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (if (i32.eq (i32.load offset=4 (local.get $args)) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 1028) (i32.const 2)) (i32.store8 (i32.const 1032) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 0x40000)) (i32.store (i32.const 1040) (i32.const 0x100000)) (return (i32.const 1024))))))
  (call $ok))
