;; Its tool answers an unknown block that is 100,000 lists in lists.
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider error: it returned an ill-formed value: `outcome.content[0]` is not valid JSON: recursion limit exceeded at line 1 column 128
(memory (export "memory") 16)
(func $start (memory.fill (i32.const 0x40000) (i32.const 91) (i32.const 100000)) (memory.fill (i32.const 362144) (i32.const 93) (i32.const 100000))) (start $start)
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (call $ok)) (i32.store8 (i32.const 0) (i32.const 2)) (i32.store (i32.const 4) (i32.const 0x40000)) (i32.store (i32.const 8) (i32.const 200000)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
