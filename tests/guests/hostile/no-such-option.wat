;; It answers an outcome whose code is neither there nor not.
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider trap: it broke off: invalid option discriminant
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 1040) (i32.const 7)) (return (i32.const 1024))))
  (call $ok))
