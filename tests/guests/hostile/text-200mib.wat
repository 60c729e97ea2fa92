;; Its tool answers a text of 200 MiB.
;; world: export dsh:tools/provider@0.1.0;
;; limit: memory-mib 256
;; fails: tools/provider limit: it handed more data to the host than the limit `output-mib` of 16 MiB
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (memory.grow (i32.const 3300)))
    (i32.store (i32.const 4) (i32.const 0x10000)) (i32.store (i32.const 8) (i32.const 0xc800000))
    (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
