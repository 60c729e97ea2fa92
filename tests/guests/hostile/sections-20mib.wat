;; Its section of the system prompt has 20 MiB.
;; world: export dsh:system-prompt/section@0.1.0;
;; fails: system-prompt/section limit: it handed more data to the host than the limit `output-mib` of 16 MiB
(memory (export "memory") 400)
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (i32.store (i32.const 12) (i32.const 0x40000)) (i32.store (i32.const 16) (i32.const 0x1400000)) (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 0)) (i32.store (i32.const 1032) (i32.const 1)) (return (i32.const 1024))))
  (call $ok))
