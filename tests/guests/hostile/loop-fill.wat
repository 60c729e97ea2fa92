;; It fills all of its memory again and again, in instructions that nothing interrupts.
;; world: export dsh:agent/request@0.1.0;
;; limit: cpu-ms 5
;; fails: agent/request limit: it computed for longer than the limit `cpu-ms` of 5 ms
;; slow: each round fills 31 MiB several times
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (drop (memory.grow (i32.const 500))) (loop (memory.fill (i32.const 65536) (i32.const 7) (i32.const 0x1f00000)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
