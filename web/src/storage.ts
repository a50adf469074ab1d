// storage.ts - what is kept in the tab or in the browser, by name; where the browser allows neither, until the
// page is closed.

class Kept {
  private readonly memory = new Map<string, string>();

  constructor(private readonly storage: () => Storage) {}

  get(name: string): string {
    try {
      return this.storage().getItem(`nibble.${name}`) ?? this.memory.get(name) ?? "";
    } catch {
      return this.memory.get(name) ?? "";
    }
  }

  /** An empty value forgets it. */
  set(name: string, value: string): void {
    this.memory.set(name, value);
    try {
      if (value) this.storage().setItem(`nibble.${name}`, value);
      else this.storage().removeItem(`nibble.${name}`);
    } catch {
      // memory has to do
    }
  }
}

export const tab = new Kept(() => sessionStorage);
export const browser = new Kept(() => localStorage);
