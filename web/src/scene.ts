// scene.ts - one page of the cache in three dimensions, once for each precision.
//
// A slab is [tokens][values] cells on the same ground; its height is bits per value, so its volume
// is the memory it takes. Colour is the value (or the error) of each cell. Loaded when the view
// is first opened; drawn when something changes, not all the time.
import {
  AmbientLight, Box3, BoxGeometry, BufferAttribute, BufferGeometry, Color, DirectionalLight, DynamicDrawUsage,
  InstancedBufferAttribute, InstancedMesh, LineBasicMaterial, LineSegments, Matrix4, Mesh, MeshBasicMaterial,
  MeshLambertMaterial, PerspectiveCamera, Raycaster, Scene as World, Vector2, Vector3, WebGLRenderer, EdgesGeometry,
} from "three";
import { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
import { colour, reducedMotion } from "./dom";

export interface Slab {
  label: string;
  notes: [string, string];
  bits: number; // per value
  shade: (row: number, col: number) => number; // -1..1: negative, nothing, positive; colours below
}

export interface SceneData {
  rows: number; // tokens written
  capacity: number; // tokens of a page
  cols: number;
  split: number; // first value of the second segment; cols: one segment
  slabs: Slab[];
}

export interface Picked {
  slab: number;
  row: number;
  col: number;
}

const WIDTH = 576;
const DEPTH = 2.4; // of a token's row
const BIT = 6.5; // height of one bit per value
const SPACE = 78; // between slabs
const RAISE = 12; // of the selected token
const SEAM = 8; // between the segments
const MAX_COLS = 1024;

/** A unit box on the ground without the faces that neighbours or the ground hide. */
function cellGeometry(): BufferGeometry {
  const p = [
    [-0.5, 1, 0.5], [0.5, 1, 0.5], [0.5, 1, -0.5], [-0.5, 1, -0.5], // top
    [-0.5, 0, 0.5], [0.5, 0, 0.5], [0.5, 1, 0.5], [-0.5, 1, 0.5], // front
    [0.5, 0, -0.5], [-0.5, 0, -0.5], [-0.5, 1, -0.5], [0.5, 1, -0.5], // back
  ].flat();
  const n = [[0, 1, 0], [0, 0, 1], [0, 0, -1]].flatMap((v) => [v, v, v, v].flat());
  const g = new BufferGeometry();
  g.setAttribute("position", new BufferAttribute(new Float32Array(p), 3));
  g.setAttribute("normal", new BufferAttribute(new Float32Array(n), 3));
  g.setIndex([0, 4, 8].flatMap((k) => [k, k + 1, k + 2, k, k + 2, k + 3]));
  return g;
}

interface Drawn {
  mesh: InstancedMesh;
  ends: Mesh[]; // walls left and right
  frame: LineSegments;
  pin: Mesh;
  label: HTMLElement;
  box: Box3;
  z: number;
  height: number;
}

export class Scene {
  onhover: (p: Picked | null) => void = () => undefined;
  onpick: (p: Picked) => void = () => undefined;
  private readonly world = new World();
  private readonly camera = new PerspectiveCamera(30, 1, 50, 6000);
  private readonly renderer: WebGLRenderer;
  private readonly controls: OrbitControls;
  private readonly cell = cellGeometry();
  private readonly sun = new DirectionalLight(0xffffff, 1.5);
  private readonly ambient = new AmbientLight(0xffffff, 2.1);
  private drawn: Drawn[] = [];
  private data: SceneData | null = null;
  private step = 1; // values for each drawn column
  private drawnCols = 1;
  private sel: { row: number; col: number } = { row: 0, col: 0 };
  private frameNo = 0;
  private readonly watch: ResizeObserver;

  /** Throws where there is no WebGL. */
  constructor(private readonly host: HTMLElement, private readonly labels: HTMLElement) {
    this.renderer = new WebGLRenderer({ antialias: true, alpha: true, powerPreference: "low-power" });
    this.renderer.setPixelRatio(Math.min(window.devicePixelRatio || 1, 2));
    const canvas = this.renderer.domElement;
    canvas.setAttribute("aria-hidden", "true");
    host.prepend(canvas);
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.enableDamping = false;
    this.controls.enablePan = false;
    this.controls.enableZoom = false; // the wheel scrolls the page; buttons zoom
    this.controls.maxPolarAngle = Math.PI * 0.49;
    this.controls.addEventListener("change", () => this.render());
    canvas.style.touchAction = "pan-y";
    this.sun.position.set(-0.4, 1, 0.7);
    this.world.add(this.sun, this.ambient);
    canvas.addEventListener("pointermove", (e) => {
      if (e.buttons === 0) this.onhover(this.cast(e));
    });
    canvas.addEventListener("pointerleave", () => this.onhover(null));
    let down: [number, number] = [0, 0];
    canvas.addEventListener("pointerdown", (e) => (down = [e.clientX, e.clientY]));
    canvas.addEventListener("click", (e) => {
      if (Math.hypot(e.clientX - down[0], e.clientY - down[1]) > 4) return; // a turn, not a click
      const p = this.cast(e);
      if (p) this.onpick(p);
    });
    this.watch = new ResizeObserver(() => this.resize());
    this.watch.observe(host);
    this.home();
  }

  dispose(): void {
    this.watch.disconnect();
    this.controls.dispose();
    this.clear();
    this.renderer.dispose();
    this.renderer.domElement.remove();
  }

  /** The first view: from the front and above, as near as all slabs fit. */
  home(): void {
    const all = new Box3(new Vector3(-WIDTH / 2, 0, -300), new Vector3(WIDTH / 2, 100, 300));
    this.drawn.forEach((d, k) => (k === 0 ? all.copy(d.box) : all.union(d.box)));
    all.max.z += 34; // the label in front
    all.max.y += RAISE + 16;
    const target = all.getCenter(new Vector3());
    const from = new Vector3(-0.26, 0.62, 1).normalize();
    const up = new Vector3(0, 1, 0).cross(from).cross(from).negate().normalize(); // of the picture
    const corners = Array.from({ length: 8 }, (_, k) => new Vector3(k & 1 ? all.max.x : all.min.x, k & 2 ? all.max.y : all.min.y, k & 4 ? all.max.z : all.min.z));
    const slope = Math.tan((this.camera.fov * Math.PI) / 360);
    for (let far = 3200; far > 500; far *= 0.98) {
      this.camera.position.copy(from).multiplyScalar(far).add(target);
      this.camera.lookAt(target);
      this.camera.updateMatrixWorld();
      const seen = corners.map((c) => c.clone().project(this.camera));
      const ys = seen.map((c) => c.y);
      const [low, high] = [Math.min(...ys), Math.max(...ys)];
      if (Math.max(...seen.map((c) => Math.abs(c.x))) > 0.94 || high - low > 1.88) break;
      target.addScaledVector(up, ((low + high) / 2) * far * slope); // into the middle
    }
    this.controls.target.copy(target);
    this.controls.update();
    this.render();
  }

  turn(angle: number): void {
    const offset = this.camera.position.clone().sub(this.controls.target);
    const steps = reducedMotion() ? 1 : 8;
    let k = 0;
    const go = (): void => {
      offset.applyAxisAngle(new Vector3(0, 1, 0), angle / steps);
      this.camera.position.copy(this.controls.target).add(offset);
      this.controls.update();
      this.render();
      if (++k < steps) requestAnimationFrame(go);
    };
    go();
  }

  zoom(factor: number): void {
    const offset = this.camera.position.clone().sub(this.controls.target);
    const far = Math.min(Math.max(offset.length() / factor, 250), 3200);
    this.camera.position.copy(this.controls.target).add(offset.setLength(far));
    this.controls.update();
    this.render();
  }

  set(data: SceneData): void {
    const old = this.data;
    this.data = data;
    this.step = Math.ceil(data.cols / MAX_COLS);
    this.drawnCols = Math.ceil(data.cols / this.step);
    const same = old && old.rows === data.rows && old.cols === data.cols && old.split === data.split && old.slabs.length === data.slabs.length && old.slabs.every((s, i) => s.bits === data.slabs[i]?.bits);
    if (!same) {
      this.build();
      if (!old) this.home();
    }
    this.paint();
  }

  select(row: number, col: number): void {
    const before = this.sel.row;
    this.sel = { row, col };
    for (const d of this.drawn) {
      if (before !== row) this.place(d, before);
      this.place(d, row);
      d.mesh.instanceMatrix.needsUpdate = true;
      const [x, z] = [this.x(Math.floor(col / this.step)), this.z(d, row)];
      d.pin.position.set(x, d.height + RAISE, z);
    }
    this.render();
  }

  private x(c: number): number {
    const d = this.data;
    const w = WIDTH / this.drawnCols;
    return -WIDTH / 2 + (c + 0.5) * w + (d && c * this.step >= d.split ? SEAM / 2 : -SEAM / 2);
  }

  private z(d: Drawn, row: number): number {
    return d.z + (row - ((this.data?.capacity ?? 64) - 1) / 2) * DEPTH;
  }

  private clear(): void {
    for (const d of this.drawn) {
      d.mesh.dispose();
      (d.mesh.material as MeshLambertMaterial).dispose();
      d.frame.geometry.dispose();
      this.world.remove(d.mesh, d.frame, d.pin, ...d.ends);
      d.label.remove();
    }
    this.drawn = [];
  }

  private build(): void {
    this.clear();
    const data = this.data;
    if (!data) return;
    const depth = data.capacity * DEPTH;
    data.slabs.forEach((s, k) => {
      const height = s.bits * BIT;
      const z = (k - (data.slabs.length - 1) / 2) * (depth + SPACE);
      const mesh = new InstancedMesh(this.cell, new MeshLambertMaterial({ color: 0xffffff }), Math.max(1, data.rows * this.drawnCols));
      mesh.count = data.rows * this.drawnCols;
      mesh.frustumCulled = false;
      mesh.instanceColor = new InstancedBufferAttribute(new Float32Array(mesh.instanceMatrix.count * 3), 3);
      mesh.instanceColor.setUsage(DynamicDrawUsage);
      const full = new BoxGeometry(WIDTH + SEAM, height, depth);
      const frame = new LineSegments(new EdgesGeometry(full), new LineBasicMaterial({ transparent: true, opacity: 0.55 }));
      full.dispose();
      frame.position.set(0, height / 2, z);
      const pin = new Mesh(new BoxGeometry(3, 30, 3).translate(0, 15, 0), new MeshBasicMaterial());
      const written = data.rows * DEPTH;
      const ends = [-1, 1].map((side) => {
        const wall = new Mesh(new BoxGeometry(0.6, height, Math.max(written, 0.1)), new MeshLambertMaterial());
        wall.position.set(side * (WIDTH / 2 + SEAM / 2), height / 2, z - depth / 2 + written / 2);
        return wall;
      });
      const label = document.createElement("div");
      label.className = "slab-label";
      label.append(document.createElement("b"), document.createElement("span"), document.createElement("span"));
      this.labels.append(label);
      const box = new Box3(new Vector3(-WIDTH / 2 - SEAM / 2, 0, z - depth / 2), new Vector3(WIDTH / 2 + SEAM / 2, height, z + depth / 2));
      const d: Drawn = { mesh, ends, frame, pin, label, box, z, height };
      this.drawn.push(d);
      for (let r = 0; r < data.rows; r++) this.place(d, r);
      this.world.add(mesh, frame, pin, ...ends);
    });
    this.select(Math.min(this.sel.row, Math.max(0, data.rows - 1)), Math.min(this.sel.col, data.cols - 1));
  }

  private place(d: Drawn, row: number): void {
    const data = this.data;
    if (!data || row >= data.rows) return;
    const w = WIDTH / this.drawnCols;
    const up = row === this.sel.row ? RAISE : 0;
    const m = new Matrix4();
    for (let c = 0; c < this.drawnCols; c++) {
      m.makeScale(w, d.height + up, DEPTH * 0.94).setPosition(this.x(c), 0, this.z(d, row));
      d.mesh.setMatrixAt(row * this.drawnCols + c, m);
    }
    d.mesh.instanceMatrix.needsUpdate = true;
  }

  /** Colours of all cells and of what surrounds them, in the present theme. */
  paint(): void {
    const data = this.data;
    if (!data) return;
    const mid = new Color(colour("value-mid"));
    const neg = new Color(colour("value-neg"));
    const pos = new Color(colour("value-pos"));
    const t = new Color();
    data.slabs.forEach((s, k) => {
      const d = this.drawn[k];
      const array = d?.mesh.instanceColor?.array;
      if (!d || !array || !d.mesh.instanceColor) return;
      for (let r = 0; r < data.rows; r++) {
        for (let c = 0; c < this.drawnCols; c++) {
          const v = s.shade(r, c * this.step);
          t.copy(mid).lerp(v < 0 ? neg : pos, Math.min(1, Math.abs(v)));
          t.toArray(array as unknown as number[], 3 * (r * this.drawnCols + c));
        }
      }
      d.mesh.instanceColor.needsUpdate = true;
      (d.frame.material as LineBasicMaterial).color.set(colour("muted"));
      (d.pin.material as MeshBasicMaterial).color.set(colour("ink"));
      for (const e of d.ends) (e.material as MeshLambertMaterial).color.copy(mid);
      [s.label, ...s.notes].forEach((text, i) => {
        const part = d.label.children[i];
        if (part) part.textContent = text;
      });
    });
    this.render();
  }

  private resize(): void {
    const { clientWidth: w, clientHeight: h } = this.host;
    if (w < 10 || h < 10) return;
    this.renderer.setSize(w, h);
    const first = this.camera.aspect === 1;
    this.camera.aspect = w / h;
    this.camera.updateProjectionMatrix();
    if (first) this.home();
    this.render();
  }

  private cast(e: PointerEvent | MouseEvent): Picked | null {
    const data = this.data;
    if (!data) return null;
    const box = this.renderer.domElement.getBoundingClientRect();
    const ray = new Raycaster();
    ray.setFromCamera(new Vector2(((e.clientX - box.left) / box.width) * 2 - 1, 1 - ((e.clientY - box.top) / box.height) * 2), this.camera);
    let best: Picked | null = null;
    let near = Infinity;
    this.drawn.forEach((d, slab) => {
      // A slab is a regular grid: where the ray meets its box tells the cell.
      const p = ray.ray.intersectBox(d.box, new Vector3());
      if (!p || p.distanceTo(ray.ray.origin) >= near) return;
      const row = Math.floor((p.z - d.box.min.z) / DEPTH);
      const w = WIDTH / this.drawnCols;
      const seam = this.x(Math.floor((data.split - 1) / this.step)) + w / 2;
      const c = Math.floor((p.x - d.box.min.x - (p.x > seam + SEAM / 2 && data.split < data.cols ? SEAM : 0)) / w);
      if (row < 0 || row >= data.rows) return;
      near = p.distanceTo(ray.ray.origin);
      best = { slab, row, col: Math.min(Math.max(c, 0) * this.step, data.cols - 1) };
    });
    return best;
  }

  private render(): void {
    cancelAnimationFrame(this.frameNo);
    this.frameNo = requestAnimationFrame(() => {
      this.renderer.render(this.world, this.camera);
      const { clientWidth: w, clientHeight: h } = this.host;
      for (const d of this.drawn) {
        // Beside the slab where there is room, else before it.
        const beside = w >= 640;
        d.label.classList.toggle("beside", beside);
        const p = new Vector3(-WIDTH / 2 - SEAM, beside ? d.height / 2 : 0, beside ? d.box.min.z + 20 : d.box.max.z + 6).project(this.camera);
        d.label.style.transform = `translate(${Math.round(((p.x + 1) / 2) * w)}px, ${Math.round(((1 - p.y) / 2) * h)}px)${beside ? " translate(-100%, -50%)" : ""}`;
        d.label.hidden = p.z > 1;
      }
    });
  }
}
