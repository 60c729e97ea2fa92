;; It passes the call on to a tool whose name is escape sequences.
;; world: export dsh:tools/execute@0.1.0;
(data (i32.const 0) "\1b]0;owned\07\0a\00x")
(func (export "dsh:tools/execute@0.1.0#handle") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (call $execute-next.run (i32.load offset=72 (local.get $args))
    (i32.load offset=8 (local.get $args)) (i32.load offset=12 (local.get $args)) (i32.const 0) (i32.const 13) (i32.load offset=24 (local.get $args)) (i32.load offset=28 (local.get $args)) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))
    (if (i32.load8_u (i32.const 2048)) (then (return (i32.const 2048)))) (return (call $passed (i32.load (i32.const 2052))))))
  (call $passed (call $rest (local.get $args))))
