;; Its tool reports progress 50,000 times and goes on.
;; world: import dsh:tools/running@0.1.0;
;; world: export dsh:tools/provider@0.1.0;
;; slow: it reports 50,000 times in each round
(data (i32.const 0) "flood")
(func (export "dsh:tools/provider@0.1.0#call-tool") (param $turn i32) (param $step i32) (param i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (local $n i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (call $running.progress (i32.const 0) (i32.const 5) (i32.const 0) (f32.const 0)) (local.set $n (i32.add (local.get $n) (i32.const 1))) (br_if 0 (i32.lt_u (local.get $n) (i32.const 50000))))))
  (call $ok))
