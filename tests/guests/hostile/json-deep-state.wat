;; It sets a value in its state that is 100,000 lists in lists, and hands on what it is told.
;; world: import dsh:plugin/state@0.1.0;
;; world: export dsh:agent/request@0.1.0;
;; fails: agent/request error: the value of `k` is not valid JSON: recursion limit exceeded at line 1 column 128 (`invalid-argument`)
(data (i32.const 0) "k")
(memory (export "memory") 16)
(func $start (memory.fill (i32.const 0x40000) (i32.const 91) (i32.const 100000)) (memory.fill (i32.const 362144) (i32.const 93) (i32.const 100000))) (start $start)
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (call $state.set (i32.const 0) (i32.const 1) (i32.const 0x40000) (i32.const 200000) (i32.const 2048)) (return (i32.const 2048))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
