;; It gives the host the address of its own parameters as room for what it is told.
;; world: export dsh:tools/execute@0.1.0;
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $execute-next.run (i32.load offset=72 (local.get $args))
    (i32.load offset=8 (local.get $args)) (i32.load offset=12 (local.get $args)) (i32.load offset=16 (local.get $args)) (i32.load offset=20 (local.get $args))
    (i32.load offset=24 (local.get $args)) (i32.load offset=28 (local.get $args)) (i32.const 0) (i32.const 0) (i32.const 0) (i32.and (local.get $args) (i32.const -8)))
    (return (call $passed (i32.load offset=4 (i32.and (local.get $args) (i32.const -8)))))))
  (call $passed (call $rest (local.get $args))))
