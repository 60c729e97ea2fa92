;; It asks about a call in a question whose title and detail have escape sequences.
;; world: export dsh:tools/guard@0.1.0;
(data (i32.const 0) "\1b]0;owned\07\1b[2J\1b[31m\00\0d\0a\e2\80\aeerror: forged\c2\9b31m\7f")
(func (export "dsh:tools/guard@0.1.0#check") (param $args i32) (result i32)
  (if (i32.eq (i32.load (local.get $args)) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 1028) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 44)) (i32.store (i32.const 1044) (i32.const 44)) (return (i32.const 1024))))
  (call $ok))
