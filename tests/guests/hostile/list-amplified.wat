;; It answers 500,000 sections that all have the same text of 64 KiB: 30 GiB to the host, 10 MiB to the guest.
;; world: export dsh:system-prompt/section@0.1.0;
;; fails: system-prompt/section limit: it handed more data to the host than the limit `output-mib` of 16 MiB
(memory (export "memory") 160)
(func (export "dsh:system-prompt/section@0.1.0#sections") (param $turn i32) (param $step i32) (result i32) (local $at i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (memory.fill (i32.const 0x10000) (i32.const 97) (i32.const 0x10000))
    (local.set $at (i32.const 0x20000))
    (loop (i32.store offset=12 (local.get $at) (i32.const 0x10000)) (i32.store offset=16 (local.get $at) (i32.const 0x10000))
      (local.set $at (i32.add (local.get $at) (i32.const 20)))
      (br_if 0 (i32.lt_u (local.get $at) (i32.const 0x9a9680))))
    (i32.store8 (i32.const 1024) (i32.const 0)) (i32.store (i32.const 1028) (i32.const 131072)) (i32.store (i32.const 1032) (i32.const 500000)) (return (i32.const 1024))))
  (call $ok))
