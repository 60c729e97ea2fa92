;; It puts messages in the place of messages, each of 2,000 lists of 2,000 lists of results that are the same memory.
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request limit: it handed more data to the host than the limit `output-mib` of 16 MiB
(memory (export "memory") 16)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32) (local $at i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (local.set $at (i32.const 0x20000))
    (loop (i32.store (local.get $at) (i32.const 1)) (i32.store offset=4 (local.get $at) (i32.const 0x40000)) (i32.store offset=8 (local.get $at) (i32.const 2000))
      (local.set $at (i32.add (local.get $at) (i32.const 12))) (br_if 0 (i32.lt_u (local.get $at) (i32.const 0x25dc0))))
    (local.set $at (i32.const 0x40000))
    (loop (i32.store8 (local.get $at) (i32.const 3)) (i32.store offset=12 (local.get $at) (i32.const 0x80000)) (i32.store offset=16 (local.get $at) (i32.const 2000))
      (local.set $at (i32.add (local.get $at) (i32.const 44))) (br_if 0 (i32.lt_u (local.get $at) (i32.const 0x557c0))))
    (call $llm-request.splice (local.get $request) (i32.const 0) (i32.const 0) (i32.const 0x20000) (i32.const 2000) (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
