;; Its tool answers 400,000 empty blocks: each costs the host more than the guest.
;; world: export dsh:tools/provider@0.1.0;
;; fails: tools/provider limit: it handed more data to the host than the limit `output-mib` of 16 MiB
;; slow: the list is 17 MiB
(memory (export "memory") 300)
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 1028) (i32.const 0x20000)) (i32.store (i32.const 1032) (i32.const 400000)) (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1036) (i32.const 0)) (i32.store8 (i32.const 1040) (i32.const 0)) (return (i32.const 1024))))
  (call $ok))
