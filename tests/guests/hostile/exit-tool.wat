;; It ends the process, as a program would, in the middle of its tool.
;; world: import wasi:cli/exit@0.2.0;
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider trap: it exited with code 0 in the middle of a call
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $exit.exit (i32.const 0))))
  (call $ok))
