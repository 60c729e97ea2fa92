;; Its tool runs programs for ever.
;; world: import dsh:tools/process@0.1.0;
;; world: export dsh:tools/provider@0.1.0;
;; grant: process
;; limit: outside-calls 50
;; fails: tools/provider limit: it asked for more questions, programs, model calls and sub-agents than the limit `outside-calls` of 50
;; slow: it runs as many as it may
(data (i32.const 0) "true")
(func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0x10000))
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $process.run (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048)) (br_if 0 (i32.eqz (i32.load8_u (i32.const 2048))))) (i32.store8 (i32.const 1024) (i32.const 1)) (memory.copy (i32.const 1028) (i32.const 2052) (i32.const 16)) (return (i32.const 1024))))
  (call $ok))
