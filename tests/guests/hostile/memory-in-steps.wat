;; It takes one page of memory after the other and writes to it, until there is none.
;; world: export dsh:agent/request@0.1.0;
;; limit: memory-mib 8
;; fails: agent/request limit: memory limit 8 MiB (`memory-mib`): it asked for 9 MiB
(func (export "dsh:agent/request@0.1.0#handle") (param $turn i32) (param $step i32) (param $request i32) (param $next i32) (result i32)
  (if (i32.eq (local.get $turn) (i32.const 1)) (then (loop (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable)) (i32.store (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 4)) (i32.const 7)) (br 0))))
  (call $request-next.run (local.get $next) (i32.const 2048))
  (call $ok))
